! Sums of a few numbers over all images.
subroutine mm_caf_sum(numbers, n) bind(c)
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: n
  real(c_double), intent(inout) :: numbers(n)
  call co_sum(numbers)
end subroutine
