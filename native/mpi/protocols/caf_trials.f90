! Words and events sent to another image, to co-arrays of any size: a library may bring only those of some sizes.
module mm_caf_trials
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: event_type
  implicit none
  private
  integer(c_int64_t), allocatable :: lone[:]
  integer(c_int64_t), allocatable :: row(:)[:]
  type(event_type), allocatable :: come(:)[:]

contains

  ! Collective. A scalar, and so many elements and events on each image. Returns 0, or another number where the memory
  ! is not to be had.
  integer(c_int) function mm_caf_trial_open(elements) bind(c)
    integer(c_int), value :: elements
    integer :: status
    allocate (lone[*], row(elements)[*], stat=status)
    mm_caf_trial_open = int(status, c_int)
    if (status /= 0) return
    allocate (come(elements)[*])
    lone = 0
    row = 0
    sync all
  end function

  subroutine mm_caf_trial_close() bind(c)
    sync all
    deallocate (lone, row, come)
  end subroutine

  ! Collective. To an image, which has it when this returns: as a scalar, or as the last element.
  subroutine mm_caf_trial_put(word, image, as_element) bind(c)
    integer(c_int64_t), value :: word
    integer(c_int), value :: image, as_element
    sync all
    if (as_element /= 0) then
      row(size(row))[image] = word
    else
      lone[image] = word
    end if
    sync all
  end subroutine

  integer(c_int64_t) function mm_caf_trial_got(as_element) bind(c)
    integer(c_int), value :: as_element
    if (as_element /= 0) then
      mm_caf_trial_got = row(size(row))
    else
      mm_caf_trial_got = lone
    end if
  end function

  ! Collective. Every event of an image once. None is waited for: one that is lost would be waited for for ever.
  subroutine mm_caf_trial_post(image) bind(c)
    integer(c_int), value :: image
    integer :: i
    sync all
    do i = 1, size(come)
      event post (come(i)[image])
    end do
    sync all
  end subroutine

  ! Of how many events this image has not been told `posts` times.
  integer(c_int) function mm_caf_trial_uncounted(posts) bind(c)
    integer(c_int), value :: posts
    integer :: i, told
    mm_caf_trial_uncounted = 0
    do i = 1, size(come)
      call event_query(come(i), told)
      if (told /= posts) mm_caf_trial_uncounted = mm_caf_trial_uncounted + 1
    end do
  end function

end module
